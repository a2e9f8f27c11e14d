// Package badinput gives toad what it must refuse, and a host that does not help. Whatever it is, the release that runs
// goes on running, and what is said tells what is wrong, why, and what to do.
package badinput
