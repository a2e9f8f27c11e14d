// Package scene sets up what most suites start from: a host on which the Quadlet web.container runs a sample image, is
// enrolled as the service web, and toad is set up.
package scene
