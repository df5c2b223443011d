package misuse

import (
	"maps"
	"slices"
)

// The kinds of findings. A deadlock has one of the kinds that begin with "deadlock".
const (
	CollectiveOrder   = "collective order"
	CollectiveRoot    = "collective root"
	CollectiveOp      = "collective operation"
	CollectiveType    = "collective type"
	CollectiveCount   = "collective count"
	CollectiveMissing = "collective missing"
	FenceAssert       = "fence assertion"

	Truncated    = "message truncated"
	NotReady     = "ready send without receive"
	MessageLost  = "message never received"
	ReceiveLost  = "receive never matched"
	MatchedLost  = "matched message never received"
	MessageRace  = "message race"
	BufferChange = "send buffer changed"

	RequestLost  = "request never completed"
	RequestUse   = "request misused"
	RequestFreed = "active request freed"
	NeverStarted = "persistent request never started"
	NeverFreed   = "persistent request never freed"
	CommLeak     = "communicator never freed"
	WindowLeak   = "window never freed"

	EpochOpen    = "epoch never closed"
	EpochMisuse  = "epoch misused"
	BrokenAssert = "window assertion broken"
	Argument     = "invalid argument"

	HeadToHead      = "deadlock: receives head to head"
	RingReceives    = "deadlock: ring of receives"
	SendsHeadToHead = "deadlock: sends head to head"
	RingSends       = "deadlock: ring of sends"
	ToItself        = "deadlock: message to itself"
	SendReceive     = "deadlock: sends and receives"
	MissingPartner  = "deadlock: no matching call"
	WrongTag        = "deadlock: other tag"
	WrongComm       = "deadlock: other communicator"
	WrongRank       = "deadlock: other rank"
	WildcardTook    = "deadlock: wildcard receive took the message"
	CrossedComms    = "deadlock: collectives of two communicators"
	CrossedCalls    = "deadlock: message and collective"
	LockOrder       = "deadlock: window locks"
	LockHeld        = "deadlock: lock held while waiting"
	PostStart       = "deadlock: post-start-complete-wait"
	Livelock        = "livelock: polling for ever"
	Unsafe          = "unsafe: depends on buffering"
)

// cures say how to correct a program, by the kind of the finding.
var cures = map[string]string{
	CollectiveOrder:   "call the collectives of a communicator in the same order on all of its ranks, all blocking or all nonblocking",
	CollectiveRoot:    "pass the same root on all ranks",
	CollectiveOp:      "pass the same operation on all ranks",
	CollectiveType:    "pass the same type on all ranks",
	CollectiveCount:   "pass sizes that agree on all ranks",
	CollectiveMissing: "call the collective on all ranks of the communicator",
	FenceAssert:       "pass NoPrecede and NoSucceed on all ranks or on none",

	Truncated:    "receive into a buffer that is as long as the message; Probe returns the size",
	NotReady:     "post the receive first, and tell the sender, for example by a message",
	MessageLost:  "receive the message, or do not send it",
	ReceiveLost:  "send the message, or cancel the receive",
	MatchedLost:  "receive the message with Message.Recv",
	MessageRace:  "receive from a specific rank, or accept the messages in any order",
	BufferChange: "do not write to the buffer until the request is complete",

	RequestLost:  "complete the request with Wait or Test",
	RequestUse:   "start only inactive persistent requests that are not freed",
	RequestFreed: "complete the request before Free",
	NeverStarted: "start the request, or do not create it",
	NeverFreed:   "free the request with Free",
	CommLeak:     "free the communicator with Free, on all of its ranks",
	WindowLeak:   "free the window with Free, on all ranks",

	EpochOpen:    "close the epoch on all of its ranks",
	EpochMisuse:  "open the epoch that the call needs, and close it before another one",
	BrokenAssert: "do not pass the assertion",
	Argument:     "", // the error of the call says it

	HeadToHead:      "let one of the ranks send first, or use Sendrecv or Irecv",
	RingReceives:    "let one of the ranks send first, or use Sendrecv or Irecv",
	SendsHeadToHead: "let one of the ranks receive first, or use Sendrecv or Isend",
	RingSends:       "let one of the ranks receive first, or use Sendrecv or Isend",
	ToItself:        "post the receive with Irecv before the send",
	SendReceive:     "call sends and receives in matching order, or use Isend and Irecv",
	MissingPartner:  "add the matching call, or remove this one",
	WrongTag:        "use the same tag in both calls",
	WrongComm:       "use the same communicator in both calls",
	WrongRank:       "name the rank that makes the matching call",
	WildcardTook:    "post the receives from specific ranks first, or use other tags",
	CrossedComms:    "call collectives of different communicators in the same order on all ranks",
	CrossedCalls:    "make the call that completes the message before the collective on both ranks, or after it",
	LockOrder:       "lock windows in the same order on all ranks",
	LockHeld:        "release the lock before waiting for a rank that needs it",
	PostStart:       "call Post for each Start, and Complete for each Wait, with groups that name each other",
	Livelock:        "make the call that the polled operation needs",
	Unsafe:          "do not rely on sends that return before the receive, or collectives that return before all ranks call",
}

// Kinds returns all kinds of findings.
func Kinds() []string { return slices.Sorted(maps.Keys(cures)) }
