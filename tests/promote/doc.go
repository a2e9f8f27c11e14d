// Package promote is the main job: a digest reaches production on a real host.
package promote
