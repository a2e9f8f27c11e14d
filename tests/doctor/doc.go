// Package doctor is what an operator does when something is wrong, or wants toad out of the way: unpin, doctor, repair,
// and what the fence puts right by itself.
package doctor
