// Package fault names the points at which a test may kill the process or fail a call. Without the build tag "faults" a
// point does nothing.
package fault
