package control

import (
	"encoding/json"
	"io"
	"net/http"
)

// Wishes is how a test that is in another process tells the servers what to be, over plain HTTP on a Unix socket:
//
//	POST /env/ENV            a JSON Env; fields that are left out stay as they are
//	POST /bundle/ENV/SHA     a tar, published
//	POST /secret/ENV/NAME    a value, as the next version
//	POST /grant/ENV/BOX      returns a deploy grant
//	POST /expire/ENV/BOX     and /remove/ENV/BOX
//	POST /fault              a JSON Fault; DELETE ends all
//	GET  /seen/ENV           {"check_ins","reports","leases"}
//	GET  /secrets            all there ever was, a JSON list
func (w *World) Wishes() http.Handler {
	mux := http.NewServeMux()
	post := func(path string, do func(r *http.Request, body []byte) (any, error)) {
		mux.HandleFunc(path, func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
			var out any
			if err == nil {
				out, err = do(r, body)
			}
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadRequest)
				return
			}
			answer(rw, out)
		})
	}
	post("POST /env/{env}", func(r *http.Request, body []byte) (out any, err error) {
		w.Set(r.PathValue("env"), func(e *Env) { err = json.Unmarshal(body, e) })
		return nil, err
	})
	post("POST /bundle/{env}/{sha}", func(r *http.Request, body []byte) (any, error) {
		w.Publish(r.PathValue("env"), r.PathValue("sha"), body)
		return nil, nil
	})
	post("POST /secret/{env}/{name}", func(r *http.Request, body []byte) (any, error) {
		return w.PutSecret(r.PathValue("env"), r.PathValue("name"), string(body)), nil
	})
	post("POST /grant/{env}/{box}", func(r *http.Request, _ []byte) (any, error) {
		return w.Grant(r.PathValue("env"), r.PathValue("box")), nil
	})
	post("POST /expire/{env}/{box}", func(r *http.Request, _ []byte) (any, error) {
		w.Expire(r.PathValue("env"), r.PathValue("box"))
		return nil, nil
	})
	post("POST /remove/{env}/{box}", func(r *http.Request, _ []byte) (any, error) {
		w.Remove(r.PathValue("env"), r.PathValue("box"))
		return nil, nil
	})
	post("POST /fault", func(_ *http.Request, body []byte) (any, error) {
		var f Fault
		if err := json.Unmarshal(body, &f); err != nil {
			return nil, err
		}
		w.Fault(f)
		return nil, nil
	})
	post("DELETE /fault", func(*http.Request, []byte) (any, error) { w.ClearFaults(); return nil, nil })
	post("GET /seen/{env}", func(r *http.Request, _ []byte) (any, error) {
		env := r.PathValue("env")
		return map[string]any{"check_ins": w.CheckIns(env, ""), "reports": w.Reports(env, ""), "leases": w.Leases(env, "")}, nil
	})
	post("GET /secrets", func(*http.Request, []byte) (any, error) { return w.Secrets(), nil })
	return mux
}
