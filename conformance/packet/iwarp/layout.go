package iwarp

// The first two octets of a segment: T, L, four reserved bits, two bits of DDP version;
// two bits of RDMAP version, two reserved bits, four bits of opcode.
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
	terminateLen   = 4 // without quoted headers
)

// DDP queue numbers (Sends use 0), and the first MSN of each queue.
const (
	queueRequest        = 1
	queueTerminate      = 2
	queueAtomicResponse = 3
	firstMSN            = 1
)

// version is the version of DDP and of RDMAP.
const version = 1

// Val returns *p, or the zero value if p is nil.
func Val[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
