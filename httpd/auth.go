package httpd

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"toad/authstore"
	"toad/probation"
)

// caller is who asks, from where, and what he may do.
type caller struct {
	by    string           // "uid 1000", or "token 0123456789"
	from  string           // "the Unix socket", or an address
	token *authstore.Token // over TCP; nil on the Unix socket, where everything is allowed, and where no token is needed
}

// may refuses what the caller's token does not allow.
func (c caller) may(verb authstore.Verb, service string) error {
	if c.token == nil || c.token.May(verb, service) {
		return nil
	}
	on := fmt.Sprintf("service %.80q", service)
	if service == authstore.All {
		on = "every service"
	}
	return refuse(http.StatusForbidden, probation.CodeForbidden, fmt.Sprintf("this token does not allow %s on %s", verb, on))
}

// need is what a route asks of a caller over TCP.
type need struct {
	public  bool // no token
	local   bool // the Unix socket, whatever the token
	verb    authstore.Verb
	service func(c *call) string // which service the verb must be allowed on; nil: any
}

func ofService(verb authstore.Verb) need {
	return need{verb: verb, service: func(c *call) string { return c.param("service") }}
}

// ofOperation asks for the verb on the operation's service. What is no operation's id belongs to no service.
func ofOperation(verb authstore.Verb) need {
	return need{verb: verb, service: func(c *call) string {
		service, _, _ := probation.ParseOperationID(c.param("id"))
		return service
	}}
}

func everyService(*call) string { return authstore.All }

// admit finds out who asks, and refuses who may not.
func (s *Server) admit(c *call, p peer, n need) error {
	if p.unix {
		return s.admitUser(c, p)
	}
	c.from = p.from
	switch {
	case !s.ownName(c.r.Host):
		return refuse(http.StatusMisdirectedRequest, CodeMisdirected,
			fmt.Sprintf("this toad does not go by the name %.80q; other names than those of the loopback are given with: toad setup --host", c.r.Host))
	case foreign(c.r):
		return refuse(http.StatusForbidden, probation.CodeForbidden, "requests made for a web page are refused")
	case n.local:
		return refuse(http.StatusForbidden, probation.CodeForbidden, "this is answered on toad's Unix socket only")
	case n.public:
		return nil
	}
	token, err := s.Tokens.Check(bearer(c.r.Header))
	if errors.Is(err, authstore.ErrDamaged) {
		s.Log.Error("no token is valid", "err", err)
	}
	switch {
	case errors.Is(err, authstore.ErrInvalid):
		p := refuse(http.StatusUnauthorized, probation.CodeUnauthorized, "there is no valid token in this request")
		p.Hint = "send Authorization: Bearer <id>.<secret>; toad token issue makes one, on toad's host"
		return p
	case err != nil:
		return err
	}
	c.by, c.token = "token "+token.ID, &token
	if n.service == nil {
		return nil
	}
	return c.may(n.verb, n.service(c))
}

func (s *Server) admitUser(c *call, p peer) error {
	c.from = "the Unix socket"
	switch {
	case p.err != nil:
		return refuse(http.StatusForbidden, probation.CodeForbidden, "the kernel does not tell who asks: "+p.err.Error())
	case !s.allowed(p.uid):
		return refuse(http.StatusForbidden, probation.CodeForbidden,
			fmt.Sprintf("uid %d may not use the toad of uid %d", p.uid, os.Getuid()))
	case c.r.Header.Get("Origin") != "" || crossSite(c.r):
		// Nothing that a browser shows comes from this socket, so a page that asks is always another's.
		return refuse(http.StatusForbidden, probation.CodeForbidden, "requests made for a web page are refused")
	}
	c.by = fmt.Sprintf("uid %d", p.uid)
	return nil
}

// bearer is the token of a request; nonsense where there is not exactly one, which is checked like any other.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// ownName reports whether a Host header names this toad. A page of another site that has its name resolve to the
// loopback is known by the name it asks for.
func (s *Server) ownName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	name = strings.ToLower(name)
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return name == "localhost" || slices.Contains(s.Hosts, name)
}

// foreign reports whether a page of another site made the request.
func foreign(r *http.Request) bool {
	if origin := r.Header.Values("Origin"); len(origin) > 1 || len(origin) == 1 && origin[0] != "http://"+r.Host {
		return true
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return crossSite(r) && site != "same-origin"
}

func crossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "none"
}
