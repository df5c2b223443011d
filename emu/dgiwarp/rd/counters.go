package rd

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// Counters are the counters of a layer.
type Counters struct {
	SentData       uint64 `counter:"rd_sent_data"`
	SentAgain      uint64 `counter:"rd_sent_again"`
	SentAcks       uint64 `counter:"rd_sent_acks"`
	SentChallenges uint64 `counter:"rd_sent_challenges"`
	SentRefusals   uint64 `counter:"rd_sent_refusals"`
	Delivered      uint64 `counter:"rd_delivered"` // segments accepted by the owner
	Busy           uint64 `counter:"rd_busy"`      // segments refused by the owner
	Timeouts       uint64 `counter:"rd_timeouts"`
	LossesSeen     uint64 `counter:"rd_losses"` // segments declared lost without a timeout
	FlowsFailed    uint64 `counter:"rd_flows_failed"`
	PeersMade      uint64 `counter:"rd_peers_made"`
	PeersIdle      uint64 `counter:"rd_peers_idle"`
	// Dropped packets.
	PeersRefused  uint64 `counter:"rd_peers_refused"`  // starts for which there was no room
	DropRepeated  uint64 `counter:"rd_drop_repeated"`  // duplicate data
	DropBeyond    uint64 `counter:"rd_drop_beyond"`    // data beyond the window
	DropStore     uint64 `counter:"rd_drop_store"`     // out-of-order data without room in the store
	DropUnknown   uint64 `counter:"rd_drop_unknown"`   // data of an unknown flow
	DropUnproved  uint64 `counter:"rd_drop_unproved"`  // starts without a valid proof
	DropAck       uint64 `counter:"rd_drop_ack"`       // acknowledgements of no flow, or of what was never sent
	DropEmpty     uint64 `counter:"rd_drop_empty"`     // packets with neither data nor an acknowledgement
	DropChallenge uint64 `counter:"rd_drop_challenge"` // unexpected challenges
	DropRefusal   uint64 `counter:"rd_drop_refusal"`   // unexpected refusals, or of a flow that is still starting
	DropReply     uint64 `counter:"rd_drop_reply"`     // challenges and refusals for which the queue was full
	DropUnclaimed uint64 `counter:"rd_drop_unclaimed"` // segments that the owner had not fetched before the next Input
}

// CounterNames has the names of the counters.
var CounterNames = nic.NewCounterNames[Counters]()
