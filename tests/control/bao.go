package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Role is the role of the auth mount that grants are for.
const Role = "deploy"

// reading is the policy by which a token reads its environment's secrets.
const reading = "env-read"

// Bao is the OpenBao-shaped server: the login of the mount jwt-tenancy, the token's own routes, and the KV v2 mount kv.
func (w *World) Bao() http.Handler {
	mux := http.NewServeMux()
	both := func(path string, h http.HandlerFunc) {
		mux.HandleFunc("PUT "+path, h)
		mux.HandleFunc("POST "+path, h)
	}
	both("/v1/auth/jwt-tenancy/login", w.login)
	both("/v1/auth/token/renew-self", w.vault(w.renew))
	both("/v1/auth/token/revoke-self", w.vault(func(rw http.ResponseWriter, r *http.Request, t *token) {
		t.revoked = true
		rw.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("GET /v1/auth/token/lookup-self", w.vault(w.lookup))
	mux.HandleFunc("GET /v1/kv/data/{env}/{name}", w.vault(w.data))
	mux.HandleFunc("GET /v1/kv/metadata/{env}/{name}", w.vault(w.metadata))
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) { refused(rw, http.StatusForbidden, "permission denied") })
	return w.broken("bao", vaultToken, func(rw http.ResponseWriter, status int) {
		refused(rw, status, "as the test wants it")
	}, mux)
}

// refused answers as OpenBao does: no code, only words.
func refused(rw http.ResponseWriter, status int, words ...string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	if words == nil {
		words = []string{}
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{"errors": words})
}

func vaultToken(r *http.Request) string {
	if t := r.Header.Get("X-Vault-Token"); t != "" {
		return t
	}
	return bearer(r)
}

func (w *World) vault(next func(http.ResponseWriter, *http.Request, *token)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		t := w.tokens[vaultToken(r)]
		if t == nil || !t.valid(w.now()) {
			refused(rw, http.StatusForbidden, "permission denied", "invalid token")
			return
		}
		next(rw, r, t)
	}
}

func reply(rw http.ResponseWriter, data, auth any) {
	answer(rw, map[string]any{"request_id": random(12), "lease_id": "", "renewable": false, "lease_duration": 0, "data": data,
		"wrap_info": nil, "warnings": nil, "auth": auth})
}

func (w *World) login(rw http.ResponseWriter, r *http.Request) {
	var in struct{ Role, JWT string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refused(rw, http.StatusBadRequest, "error parsing JSON")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.grants[in.JWT]
	switch {
	case in.Role != Role:
		refused(rw, http.StatusBadRequest, fmt.Sprintf("role %q could not be found", in.Role))
		return
	case g == nil:
		refused(rw, http.StatusBadRequest, "error validating token: error verifying token signature: no known key successfully validated the token signature")
		return
	case !w.now().Before(g.expires):
		refused(rw, http.StatusBadRequest, "error validating token: token is expired")
		return
	case g.superseded, g.used && w.env(g.env).SingleUse:
		refused(rw, http.StatusBadRequest, "error validating claims: the grant is superseded or used")
		return
	}
	g.used = true
	e := w.env(g.env)
	ttl, most := or(e.TokenTTL, time.Hour), or(e.TokenMaxTTL, 24*time.Hour)
	for _, t := range w.tokens {
		t.replaced = t.replaced || (t.env == g.env && t.box == g.box)
	}
	id, now := "s."+random(24), w.now()
	t := &token{env: g.env, box: g.box, accessor: random(18), policies: []string{"default", reading}, expires: now.Add(min(ttl, most)), last: now.Add(most)}
	w.tokens[id] = t
	w.secrets[id], w.secrets[t.accessor] = true, true
	reply(rw, nil, w.auth(id, t))
}

func or(d, otherwise time.Duration) time.Duration {
	if d != 0 {
		return d
	}
	return otherwise
}

func (w *World) auth(id string, t *token) any {
	return map[string]any{"client_token": id, "accessor": t.accessor, "policies": t.policies, "token_policies": t.policies,
		"metadata":       map[string]string{"role": Role, "env_id": t.env, "box": t.box},
		"lease_duration": int(t.expires.Sub(w.now()).Round(time.Second) / time.Second), "renewable": true, "entity_id": random(12),
		"token_type": "service", "orphan": true, "mfa_requirement": nil, "num_uses": 0}
}

func (w *World) renew(rw http.ResponseWriter, r *http.Request, t *token) {
	ttl := or(w.envs[t.env].TokenTTL, time.Hour)
	t.expires = w.now().Add(ttl)
	if t.expires.After(t.last) {
		t.expires = t.last
	}
	reply(rw, nil, w.auth(vaultToken(r), t))
}

func (w *World) lookup(rw http.ResponseWriter, r *http.Request, t *token) {
	reply(rw, map[string]any{"accessor": t.accessor, "id": vaultToken(r), "policies": t.policies, "renewable": true,
		"ttl": int(t.expires.Sub(w.now()) / time.Second), "type": "service", "meta": map[string]string{"env_id": t.env}}, nil)
}

// pinned finds a secret of the token's environment; to all else there is no permission.
func (w *World) pinned(rw http.ResponseWriter, r *http.Request, t *token) ([]version, bool) {
	if r.PathValue("env") != t.env || !strings.Contains(strings.Join(t.policies, " "), reading) {
		refused(rw, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
		return nil, false
	}
	all := w.kv[t.env+"/"+r.PathValue("name")]
	if len(all) == 0 {
		refused(rw, http.StatusNotFound)
		return nil, false
	}
	return all, true
}

func (v version) metadata() map[string]any {
	deleted := ""
	if !v.deleted.IsZero() {
		deleted = v.deleted.UTC().Format(time.RFC3339Nano)
	}
	return map[string]any{"created_time": v.created.UTC().Format(time.RFC3339Nano), "deletion_time": deleted, "destroyed": false}
}

func (w *World) data(rw http.ResponseWriter, r *http.Request, t *token) {
	all, ok := w.pinned(rw, r, t)
	if !ok {
		return
	}
	latest := all[len(all)-1]
	meta := latest.metadata()
	meta["version"], meta["custom_metadata"] = len(all), nil
	var data any
	if latest.deleted.IsZero() {
		data = map[string]string{"value": latest.value}
	} else {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusNotFound)
	}
	reply(rw, map[string]any{"data": data, "metadata": meta}, nil)
}

func (w *World) metadata(rw http.ResponseWriter, r *http.Request, t *token) {
	all, ok := w.pinned(rw, r, t)
	if !ok {
		return
	}
	versions := map[string]any{}
	for i, v := range all {
		versions[strconv.Itoa(i+1)] = v.metadata()
	}
	last := all[len(all)-1].created.UTC().Format(time.RFC3339Nano)
	reply(rw, map[string]any{"cas_required": false, "created_time": all[0].created.UTC().Format(time.RFC3339Nano), "current_version": len(all),
		"custom_metadata": nil, "delete_version_after": "0s", "max_versions": 0, "oldest_version": 1, "updated_time": last, "versions": versions}, nil)
}
