// Package binary runs a service whose releases are files, and shows that they are judged, put back, refused and proven as
// images are.
package binary
