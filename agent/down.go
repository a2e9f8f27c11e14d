package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"toad/agent/protocol"
)

// down begins to bring the box out of its environment: what the bundles brought is stopped and unpinned.
func (a *Agent) down(ctx context.Context, purge bool) error {
	a.st.Attempts++
	a.st.Applying = &Attempt{ID: a.attemptID(), Started: a.Now().UTC(), Purge: purge}
	if err := a.Store.Put(a.st); err != nil {
		return err
	}
	if err := a.goOut(ctx); err != nil {
		return err
	}
	return a.leave(ctx)
}

// goOut takes everything away but the token, which the report needs. Volumes stay unless they are asked for, and on tier
// prod whoever asks.
func (a *Agent) goOut(ctx context.Context) error {
	at := a.st.Applying
	was, err := a.Store.plan(a.st.InForce)
	if err != nil {
		return err
	}
	before, err := a.Store.plan(a.st.Before)
	if err != nil {
		return err
	}
	volumes := slices.Compact(slices.Sorted(slices.Values(append(was.volumes(), before.volumes()...))))
	if err := a.retire(ctx, was, &Plan{}); err != nil {
		return err
	}
	if at.Detail = "volumes are kept"; at.Purge && a.Config.Tier() == "prod" {
		at.Detail = "a purge was asked for and refused: volumes of tier prod are kept"
		a.Log.Error("a purge is refused: this box is of tier prod", "env", a.Config.EnvID)
	} else if at.Purge {
		if err := a.Podman.DropVolumes(ctx, volumes); err != nil {
			return err
		}
		at.Detail = fmt.Sprintf("%d volumes were purged", len(volumes))
	}
	if err := a.Ground.Install(ctx, nil, nil); err != nil {
		return err
	}
	if err := a.Podman.DropSecrets(ctx, nil); err != nil {
		return err
	}
	if err := a.Store.turn(""); err != nil {
		return err
	}
	r := a.report(protocol.ResultDown, a.results(was, protocol.ResultDown), "")
	r.Detail = at.Detail
	a.st.Report, a.st.InForce, a.st.Before, a.st.Applying, a.st.Failed, a.st.Gone = r, nil, nil, nil, nil, true
	if err := a.Store.Put(a.st); err != nil {
		return err
	}
	return a.Store.sweep()
}

// leave tells that the box is out, and ends its token. A token that is not accepted any more has nobody left to be told.
func (a *Agent) leave(ctx context.Context) error {
	token, err := a.Store.Bearer()
	if err != nil || token == "" {
		return err
	}
	a.Redactor.Add("", token)
	a.Vault.SetToken(token)
	if err := a.sendReport(ctx); err != nil && !errors.Is(err, protocol.ErrUnauthenticated) {
		return err
	}
	if err := a.Vault.Revoke(ctx); err != nil {
		return err
	}
	a.st.Report = nil
	return a.Store.PutBearer("")
}
