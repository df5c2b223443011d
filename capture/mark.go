package capture

import "fmt"

// MarkKind is the type of a mark.
type MarkKind uint8

// Mark kinds.
const (
	MarkRetransmission MarkKind = iota // sequence numbers seen before
	MarkDuplicateAck
	MarkGap         // sequence numbers are missing before this packet
	MarkOutOfOrder  // the packet fills a gap
	MarkChecksum    // wrong ICRC, CRC or IP checksum
	MarkNak         // NAK or Terminate
	MarkRNR         // RNR NAK
	MarkRejected    // connection rejected or reset
	MarkCongestion  // ECN CE or CNP
	MarkMalformed   // protocol violation
	MarkMissingData // octets of a TCP stream were not captured
	MarkComment     // pcapng packet comment

	NumMarkKinds
)

var markNames = [NumMarkKinds]string{
	"retransmission", "duplicate-ack", "gap", "out-of-order", "bad-checksum", "nak", "rnr", "refused",
	"congestion", "malformed", "lost", "comment",
}

// String returns the name of the kind.
func (k MarkKind) String() string {
	if k < NumMarkKinds {
		return markNames[k]
	}
	return fmt.Sprintf("mark %d", uint8(k))
}

// Mark is a diagnostic of a packet, similar to Wireshark's expert information.
type Mark struct {
	Kind MarkKind
	Text string // details
}
