package capture

import "fmt"

// MarkKind is what a mark is about.
type MarkKind uint8

// The kinds of mark.
const (
	MarkRetransmission MarkKind = iota // sequence numbers that were seen before
	MarkDuplicateAck
	MarkGap         // sequence numbers are missing before this packet
	MarkOutOfOrder  // late: it fills such a gap
	MarkChecksum    // ICRC, CRC or IP checksum is wrong
	MarkNak         // negative acknowledgement, Terminate
	MarkRNR         // receiver not ready
	MarkRejected    // connection rejected or reset
	MarkCongestion  // ECN mark or congestion notification
	MarkMalformed   // it cannot be what it claims to be
	MarkMissingData // the capture lacks what it takes to follow a stream
	MarkComment     // the one who wrote the file has a word on it

	// NumMarkKinds is how many there are.
	NumMarkKinds
)

var markNames = [NumMarkKinds]string{
	"retransmission", "duplicate-ack", "gap", "out-of-order", "bad-checksum", "nak", "rnr", "refused",
	"congestion", "malformed", "lost", "comment",
}

// String prints the kind as one word.
func (k MarkKind) String() string {
	if k < NumMarkKinds {
		return markNames[k]
	}
	return fmt.Sprintf("mark %d", uint8(k))
}

// Mark draws attention to a packet.
type Mark struct {
	Kind MarkKind
	Text string // what exactly, in a few words
}
