package bench

import (
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// NamespaceOptions are options of benches in network namespaces.
type NamespaceOptions struct {
	// Parallel is the number of concurrent cases, each in separate namespaces; 0
	// means 1.
	Parallel int
	// MaxTime ends a case that hangs; 0 means 2 min.
	MaxTime time.Duration
	// Restrictions are those of the devices under test.
	Restrictions nics.Restrictions
}

const (
	defaultMaxRealTime = 2 * time.Minute
	// cleanUpTimeout is how long a stopped case and its tasks may take to end.
	cleanUpTimeout = 15 * time.Second
)
