// Package recovery takes the user manager, the host and the files away from toad in the middle of a deployment. The
// points at which toad changes the host are tried one by one in its folder matrix.
package recovery
