//go:build !newerschema

package record

// Schema is the version of the record files this build writes; it reads those from oldest on.
const Schema = 1
