package nstest

import "github.com/fabrictest/fabrictest/netns"

// NS is a network namespace held by a descriptor.
type NS = netns.NS

// New makes a namespace whose loopback interface is up.
func New() (*NS, error) { return netns.New() }
