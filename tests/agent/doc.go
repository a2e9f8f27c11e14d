// Package agent brings boxes into an environment of a control plane in their net, and shows that they converge to what is
// published there, whatever happens on the way.
package agent
