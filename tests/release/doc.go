// Package release makes a release of the tree as it stands, and uses it as those would who fetch it.
package release
