// Package failure is what happens when a release is bad: the previous one serves again, and the answer is true.
package failure
