//go:build newerschema

package record

// Schema is that of a later toad, for the suite that moves a host between versions.
const Schema = 2
