// Package cases holds what people hit with tools that do toad's job, one file a case: the input that trips them, and what
// toad makes of it. Each case finds a host as if it were new.
package cases
