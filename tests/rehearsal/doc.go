// Package rehearsal ships what must not come into force, to two hosts that share a registry: the wrong program, builds that
// fail, what never ran anywhere else, and proofs that are none. Each line is rehearsed for a container and, with TOAD_ALL=1, for
// a binary service.
package rehearsal
