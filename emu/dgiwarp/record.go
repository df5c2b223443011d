package dgiwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// Record describes a received Write-Record (an RDMA Write with immediate data on UD): where
// it was written, and which of its bytes have arrived.
type Record = engine.Record

// Range is a range of bytes of a Write-Record that have arrived.
type Range = engine.Range

// ParseRecord parses the record of a Write-Record from its completion and the buffer of its
// receive, which begins with the GRH.
func ParseRecord(wc *verbs.WC, buf []byte) (Record, error) {
	const op = "parse_record"
	if wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpRecvRDMAWithImm {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: %v, %v is not the receive of a Write-Record", verbs.ErrInvalid, wc.Opcode, wc.Status)}
	}
	if int(wc.ByteLen) > len(buf) || wc.ByteLen < verbs.GRHLen {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the completion has %d bytes: it must be at least a GRH and at most the %d bytes of the buffer", verbs.ErrInvalid, wc.ByteLen, len(buf))}
	}
	r, ok := engine.ParseRecord(buf[verbs.GRHLen:wc.ByteLen])
	if !ok {
		return Record{}, &verbs.OpError{Op: op, Err: fmt.Errorf("%w: the buffer does not hold a Write-Record; receives of a reliable (RD) queue pair have none", verbs.ErrInvalid)}
	}
	return r, nil
}
