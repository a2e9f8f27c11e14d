// Package beside runs services of two sides, from the very files that docs/switch.md shows, and asserts that clients never
// see a release that toad has not watched to the end.
package beside
