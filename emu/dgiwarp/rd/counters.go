package rd

// Counters tell what has happened.
type Counters struct {
	SentData, SentAgain, SentAcks, SentChallenges, SentRefusals uint64
	Delivered                                                   uint64 // segments accepted by the owner
	Busy                                                        uint64 // segments refused by the owner
	Timeouts                                                    uint64
	LossesSeen                                                  uint64 // segments held for lost without a timeout

	PeersMade, PeersIdle, FlowsFailed uint64

	// What was dropped, and why.
	PeersRefused  uint64 // starts for which there was no room
	DropRepeated  uint64 // data that had come before
	DropBeyond    uint64 // data beyond the window
	DropStore     uint64 // data behind a gap, for which there was no room
	DropUnknown   uint64 // data of an unknown flow
	DropUnproved  uint64 // starts without a good proof
	DropAck       uint64 // acknowledgements of no flow, or of what was never sent
	DropEmpty     uint64 // packets with neither data nor an acknowledgement
	DropChallenge uint64 // challenges that nobody expects
	DropRefusal   uint64 // refusals that nobody expects, or of a flow that is still starting
	DropReply     uint64 // challenges and refusals of ours that did not fit the queue
	DropUnclaimed uint64 // segments that the owner had not asked for when the next packet came
}
