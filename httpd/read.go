package httpd

import (
	"bufio"
	"context"
	"encoding/json"
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

// services is GET /v1/services. All records are read before the answer begins, and it is sent as it is put together: as one
// text, and as values, a thousand services take several times the room.
func (s *Server) services(c *call) error {
	recorded, err := s.Records.Names()
	if err != nil {
		return err
	}
	enrolled := enrollments(s.Enrolled.All())
	var asked []probation.Enrollment
	names := recorded
	for _, e := range enrolled {
		if names = append(names, e.Name); c.may(authstore.Read, e.Name) == nil {
			asked = append(asked, e)
		}
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return c.may(authstore.Read, name) != nil // not for this token to know of
	})
	all := make([]onRecord, len(names))
	for i, name := range names {
		if all[i], err = s.read(name); err != nil {
			return err
		}
	}
	var now sights
	if live(c) {
		now = s.look(c, asked)
	}
	out := listing{c: c}
	for _, k := range all {
		if svc := c.wire(k, enrolled); !svc.Unenrolled || svc.Generation > 0 || svc.Damaged != "" {
			now.tell(c, &svc)
			out.add(svc)
		}
	}
	out.end(s.invalidEnrollment())
	return nil
}

// listing writes an api.Services, one service after the other.
type listing struct {
	c   *call
	out *bufio.Writer
}

func (l *listing) add(svc api.Service) {
	if l.out == nil {
		l.begin()
	} else {
		l.write(",")
	}
	l.encode(svc)
}

func (l *listing) begin() {
	beginBody(l.c, http.StatusOK, "application/json")
	l.out = bufio.NewWriterSize(l.c, 16<<10)
	l.write(`{"services":[`)
}

func (l *listing) end(invalid string) {
	if l.out == nil {
		l.begin()
	}
	l.write("]")
	if invalid != "" {
		l.write(`,"enrollment_invalid":`)
		l.encode(invalid)
	}
	l.write("}\n")
	_ = l.out.Flush()
}

func (l *listing) encode(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of package api that cannot be encoded
	}
	_, _ = l.out.Write(data) // to a caller that has gone there is nothing to say
}

func (l *listing) write(text string) { _, _ = l.out.WriteString(text) }

// enrollments are sorted by name.
type enrollments []probation.Enrollment

func (all enrollments) of(name string) (probation.Enrollment, bool) {
	i, ok := slices.BinarySearchFunc(all, name, func(e probation.Enrollment, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return probation.Enrollment{}, false
	}
	return all[i], true
}

// live reports whether the caller wants to know how a service is at this moment, which takes a probe.
func live(c *call) bool { return c.r.URL.Query().Get("live") == "1" }

// service is GET /v1/services/:service.
func (s *Server) service(c *call) error {
	name := c.param("service")
	if err := s.known(name); err != nil {
		return err
	}
	var enrolled enrollments
	if e, err := s.Enrolled.Enrollment(name); err == nil {
		enrolled = enrollments{e}
	}
	k, err := s.read(name)
	if err != nil {
		return err
	}
	svc := c.wire(k, enrolled)
	svc.EnrollmentInvalid = s.invalidEnrollment()
	if live(c) {
		s.look(c, enrolled).tell(c, &svc)
	}
	writeJSON(c, http.StatusOK, svc)
	return nil
}

// onRecord is what is known of a service: that its record is damaged is told too, since others must stay readable.
type onRecord struct {
	probation.Service
	damaged string
}

func (s *Server) read(name string) (onRecord, error) {
	svc, err := s.Records.Service(name)
	if errors.Is(err, record.ErrDamaged) {
		return onRecord{probation.Service{Name: name}, withoutPaths(err.Error())}, nil
	}
	return onRecord{Service: svc}, err
}

// wire tells what is on record of a service, and whether it is enrolled.
func (c *call) wire(k onRecord, enrolled enrollments) api.Service {
	out := c.wireService(k.Service)
	out.Damaged = k.damaged
	if e, ok := enrolled.of(k.Name); ok {
		out.Image = e.Image
	} else {
		out.Unenrolled = true
	}
	return out
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
