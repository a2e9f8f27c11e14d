package httpd

import (
	"encoding/json"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// What is on record becomes what is told, field by field: nothing gets out because it was added to a record.

func (c *call) wireService(s probation.Service) api.Service {
	out := api.Service{Service: s.Name, Generation: s.Generation, Promoted: wireRelease(s.Promoted), Refusals: []api.Refusal{}}
	if s.Operation != nil {
		op := c.wireOperation(*s.Operation)
		out.Operation, out.Image = &op, s.Operation.Enrollment.Image
	}
	for _, f := range s.Refusals {
		out.Refusals = append(out.Refusals, api.Refusal{Digest: f.Release.Digest, Reason: c.say(f.Reason), RefusedAt: f.RefusedAt,
			Operation: f.Operation, Code: string(f.Code)})
	}
	return out
}

func wireRelease(r *probation.Release) *api.Release {
	if r == nil {
		return nil
	}
	out := &api.Release{Digest: r.Digest, Generation: r.Generation}
	if r.Digest == "" {
		out.ImageID = r.ImageID // all there is to tell it by
	}
	if !r.PromotedAt.IsZero() {
		at := r.PromotedAt
		out.PromotedAt = &at
	}
	return out
}

func (c *call) wireOperation(op probation.Operation) api.Operation {
	out := api.Operation{ID: op.ID, Service: op.Service, Generation: op.Generation, Kind: "deployment",
		Phase: string(op.Phase), Code: string(op.Code), Reason: c.say(op.Reason), Digest: op.Candidate.Digest,
		Previous: wireRelease(op.Previous), Deadline: wireDeadline(op.Deadline), RestoreBy: wireDeadline(op.RestoreBy),
		AcceptedAt: op.AcceptedAt, EndedAt: op.EndedAt, By: op.By}
	if op.Rollback {
		out.Kind = "rollback"
	}
	if op.Gap != nil {
		out.Gap = op.Gap.Round(time.Millisecond).String()
	}
	if d := op.Enrollment.Limit.Stable; d > 0 {
		out.Stable = d.String()
	}
	return out
}

func wireDeadline(d *probation.Deadline) *time.Time {
	if d == nil {
		return nil
	}
	at := d.At
	return &at
}

// wireLine is a line of an operation's log as it is told. On the host it is told as it is.
func (c *call) wireLine(line []byte) []byte {
	if !c.remote {
		return line
	}
	var l api.Line
	if json.Unmarshal(line, &l) != nil {
		l = api.Line{Level: "warn", Event: "step", Message: "a line that is none"}
	}
	l.Message = c.say(l.Message)
	for k, v := range l.Fields {
		l.Fields[k] = c.say(v)
	}
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and a time
	}
	return data
}
