package probation

// Plan is what a deployment would do, found out without doing it.
type Plan struct {
	Operation Operation // as it would be when the switch begins
	Already   bool      // the release is in force: nothing would be done
	Code      Code      // why the preparation would fail; empty if it would not
	Reason    string
	Units     []PlannedUnit
}

// PlannedUnit is what would become of one unit.
type PlannedUnit struct {
	UnitBefore
	Reference string // the image that its pin would name
	// Wins is a setting, file and line, that would win over the pin; empty if none would.
	Wins string
}
