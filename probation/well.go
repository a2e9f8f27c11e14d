package probation

import "slices"

// maxRanWell bounds the healthy history; the oldest is forgotten.
const maxRanWell = 20

// HasRunWell reports whether this host has seen a release run well under any of its names.
func (s Service) HasRunWell(r Release) bool {
	return slices.ContainsFunc(s.RanWell, r.SameImage)
}

// RunsWell adds the release in force to the healthy history.
func (s Service) RunsWell() Service {
	if s.Promoted == nil || s.HasRunWell(*s.Promoted) {
		return s
	}
	well := *s.Promoted
	well.Definition = well.Definition.Brief()
	all := append(slices.Clone(s.RanWell), well)
	s.RanWell = all[max(0, len(all)-maxRanWell):]
	return s
}
