package rd

// Counters are the counters of a layer.
type Counters struct {
	SentData, SentAgain, SentAcks, SentChallenges, SentRefusals uint64
	Delivered                                                   uint64 // segments accepted by the owner
	Busy                                                        uint64 // segments refused by the owner
	Timeouts                                                    uint64
	LossesSeen                                                  uint64 // segments declared lost without a timeout

	PeersMade, PeersIdle, FlowsFailed uint64

	// Dropped packets.
	PeersRefused  uint64 // starts for which there was no room
	DropRepeated  uint64 // duplicate data
	DropBeyond    uint64 // data beyond the window
	DropStore     uint64 // out-of-order data without room in the store
	DropUnknown   uint64 // data of an unknown flow
	DropUnproved  uint64 // starts without a valid proof
	DropAck       uint64 // acknowledgements of no flow, or of what was never sent
	DropEmpty     uint64 // packets with neither data nor an acknowledgement
	DropChallenge uint64 // unexpected challenges
	DropRefusal   uint64 // unexpected refusals, or of a flow that is still starting
	DropReply     uint64 // challenges and refusals for which the queue was full
	DropUnclaimed uint64 // segments that the owner had not fetched before the next Input
}
