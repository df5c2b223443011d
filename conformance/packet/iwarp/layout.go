package iwarp

// The first two octets of a segment: T, L, four reserved bits and two of DDP's
// version; two bits of RDMAP's version, two reserved, four of opcode.
const (
	bitTagged       = 0x80
	bitLast         = 0x40
	maskDDPReserved = 0x0f // after the shift
	maskVersion     = 0x03
	maskReserved    = 0x03 // RDMAP's, after the shift
	maskOpcode      = 0x0f

	shiftDDPReserved   = 2
	shiftRDMAPReserved = 4
	shiftRDMAPVersion  = 6
)

// Lengths of headers.
const (
	controlLen     = 2
	taggedLen      = 14
	untaggedLen    = 18
	readRequestLen = 28
	terminateLen   = 4 // without what it quotes
)

// DDP's queues (Sends have 0), and what the first message of each is numbered.
const (
	queueRequest        = 1
	queueTerminate      = 2
	queueAtomicResponse = 3
	firstMSN            = 1
)

// version is that of DDP and of RDMAP.
const version = 1

// Val is what p points to, or the zero value: fields of a frame that was received
// are nil where its header has no such field.
func Val[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
