package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// Policy has the decisions in which real devices differ. The zero value follows the RFCs.
type Policy struct {
	// DropReadsOnEOF ends the stream when the peer has closed its direction, and does not
	// answer the peer's earlier reads.
	DropReadsOnEOF bool
	// ResetUnusable resets a connection whose queue pair failed during connection set-up,
	// without a Terminate.
	ResetUnusable bool
	// HideTerminate reports neither a Terminate of the peer nor its error.
	HideTerminate bool

	MPA    mpa.Policy
	Stream iwarp.Policy
	// Shared is the policy of memory and completion queues.
	Shared nic.Policy
}
