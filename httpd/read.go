package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"toad/authstore"
	"toad/httpd/api"
	"toad/probation"
	"toad/probation/record"
)

// known refuses a service that is neither enrolled nor on record. One that was taken out of the enrollment keeps its
// history, and what is under way for it can still be given up.
func (s *Server) known(name string) error {
	if probation.CheckServiceName(name) != nil {
		return s.unknown(name)
	}
	_, err := s.Enrolled.Enrollment(name)
	if !errors.Is(err, ErrUnknownService) {
		return err
	}
	if svc, err := s.Records.Service(name); err == nil && svc.Generation == 0 {
		return s.unknown(name)
	}
	return nil
}

// unknown says that a service is not enrolled, and whether an edit that is not in force may be why.
func (s *Server) unknown(name string) error {
	p := refuse(http.StatusNotFound, probation.CodeUnknownService, fmt.Sprintf("no service %.80q is enrolled", name))
	p.Hint = "toad status lists the enrolled services"
	if why := s.invalidEnrollment(); why != "" {
		p.Detail += "; " + strings.ReplaceAll(why, "\n", "; ")
		p.Hint = "mend the enrollment; toad status tells whether it is in force"
	}
	return p
}

// invalidEnrollment is what is wrong with the enrollment as it is now, a line for each fault.
func (s *Server) invalidEnrollment() string {
	if err := s.Enrolled.Invalid(); err != nil {
		return withoutPaths(err.Error())
	}
	return ""
}

// enrollment is the operator's word on a service that is to be changed.
func (s *Server) enrollment(name string) (probation.Enrollment, error) {
	e, err := s.Enrolled.Enrollment(name)
	if errors.Is(err, ErrUnknownService) {
		err = s.unknown(name)
	}
	return e, err
}

// services is GET /v1/services.
func (s *Server) services(c *call) error {
	recorded, err := s.Records.Names()
	if err != nil {
		return err
	}
	names := append(s.Enrolled.Names(), recorded...)
	slices.Sort(names)
	out := api.Services{Services: []api.Service{}, EnrollmentInvalid: s.invalidEnrollment()}
	for _, name := range slices.Compact(names) {
		if c.may(authstore.Read, name) != nil {
			continue // not for this token to know of
		}
		svc, err := s.read(c, name)
		if err != nil {
			return err
		}
		if !svc.Unenrolled || svc.Generation > 0 || svc.Damaged != "" {
			out.Services = append(out.Services, svc)
		}
	}
	if live(c) {
		s.look(c, out.Services)
	}
	writeJSON(c, http.StatusOK, out)
	return nil
}

// live reports whether the caller wants to know how a service is at this moment, which takes a probe.
func live(c *call) bool { return c.r.URL.Query().Get("live") == "1" }

// service is GET /v1/services/:service.
func (s *Server) service(c *call) error {
	name := c.param("service")
	if err := s.known(name); err != nil {
		return err
	}
	svc, err := s.read(c, name)
	if err != nil {
		return err
	}
	svc.EnrollmentInvalid = s.invalidEnrollment()
	if live(c) {
		one := []api.Service{svc}
		s.look(c, one)
		svc = one[0]
	}
	writeJSON(c, http.StatusOK, svc)
	return nil
}

// read tells what is on record of a service. That a record is damaged is told too: others must stay readable.
func (s *Server) read(c *call, name string) (api.Service, error) {
	svc, err := s.Records.Service(name)
	var out api.Service
	switch {
	case errors.Is(err, record.ErrDamaged):
		out = c.wireService(probation.Service{Name: name})
		out.Damaged = withoutPaths(err.Error())
	case err != nil:
		return out, err
	default:
		out = c.wireService(svc)
	}
	e, err := s.Enrolled.Enrollment(name)
	switch {
	case err == nil:
		out.Image = e.Image
	case errors.Is(err, ErrUnknownService):
		out.Unenrolled = true
	}
	return out, nil
}

// operations is GET /v1/services/:service/operations?limit=&before=.
func (s *Server) operations(c *call) error {
	name := c.param("service")
	if err := s.known(name); err != nil {
		return err
	}
	query := c.r.URL.Query()
	limit, err := number(query, "limit", 20, 100)
	if err != nil {
		return err
	}
	before, err := number(query, "before", 0, 1<<31-1)
	if err != nil {
		return err
	}
	ops, err := s.Records.Operations(name, before, limit+1)
	if err != nil {
		return err
	}
	out := api.Operations{Operations: []api.Operation{}}
	for i, op := range ops {
		if i == limit {
			out.Next = ops[i-1].Generation
			break
		}
		out.Operations = append(out.Operations, c.wireOperation(op))
	}
	writeJSON(c, http.StatusOK, out)
	return nil
}

var tagForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// tagLimit is how long a registry may take to say what a tag stands for.
const tagLimit = 20 * time.Second

// tag is GET /v1/services/:service/tags/:tag: what a tag of the service's repository stands for now.
func (s *Server) tag(c *call) error {
	name, tag := c.param("service"), c.param("tag")
	if err := s.known(name); err != nil {
		return err
	}
	if !tagForm.MatchString(tag) {
		return invalid(fmt.Sprintf("%.80q is not a tag", tag))
	}
	e, err := s.enrollment(name)
	if err != nil {
		return err
	}
	if e.Image == "" {
		return invalid(name + " is enrolled without an image, so there are no tags of it; ship its releases, or deploy what is on the host by its digest")
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), tagLimit)
	defer cancel()
	digest, err := s.Registry.Resolve(ctx, e.Image, tag)
	if err != nil {
		return err
	}
	writeJSON(c, http.StatusOK, api.Tag{Service: name, Image: e.Image, Tag: tag, Digest: digest})
	return nil
}

func number(query url.Values, name string, absent, most int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(fmt.Sprintf("%s=%.20q: want a number from 1 to %d", name, text, most))
	}
	return n, nil
}

// operation is GET /v1/operations/:id.
func (s *Server) operation(c *call) error {
	op, err := s.lookUp(c.param("id"))
	if err != nil {
		return err
	}
	writeJSON(c, http.StatusOK, c.wireOperation(op))
	return nil
}

// lookUp reads an operation. That it is not found means little while its service's record is damaged.
func (s *Server) lookUp(id string) (probation.Operation, error) {
	op, err := s.Records.Operation(id)
	if name, _, ok := probation.ParseOperationID(id); ok && errors.Is(err, record.ErrUnknown) {
		if _, damaged := s.Records.Service(name); errors.Is(damaged, record.ErrDamaged) {
			return op, damaged
		}
	}
	return op, err
}

// health is GET /healthz: one word when all is well. Over TCP it is one word in any case.
func (s *Server) health(c *call) error {
	err := s.well(c.r.Context())
	switch {
	case err != nil && c.remote:
		writeText(c, http.StatusServiceUnavailable, "failing")
		return nil
	case err != nil:
		p := refuse(http.StatusServiceUnavailable, CodeUnhealthy, withoutPaths(strings.ReplaceAll(err.Error(), "\n", "; ")))
		p.Hint = "toad doctor looks closer, and tells what mends it"
		return p
	}
	writeText(c, http.StatusOK, "ok")
	return nil
}

// well looks at the host's health. An answer stands for a moment: anybody may ask, and it costs a flush to the disk.
func (s *Server) well(ctx context.Context) error {
	if s.Health == nil {
		return nil
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	if s.looked.IsZero() || s.now().Sub(s.looked).Abs() >= s.stands {
		s.lastLook = s.Health(context.WithoutCancel(ctx))
		s.looked = s.now()
	}
	return s.lastLook
}
