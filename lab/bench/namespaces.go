package bench

import (
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// NamespaceOptions is how benches in network namespaces are made.
type NamespaceOptions struct {
	// Parallel is how many cases may run at once, each in namespaces of its own; 1
	// if 0.
	Parallel int
	// MaxTime ends a case that comes to no end; 2 min if 0.
	MaxTime time.Duration
	// Claims are what the devices under test have less of than others of their
	// provider.
	Claims nics.Claims
}

const (
	defaultMaxRealTime = 2 * time.Minute
	// grace is what a case that is to end, and its tasks, have to do so.
	grace = 15 * time.Second
)
