package wire

// Info are the properties of an opcode.
type Info struct {
	Name      string // transport and operation, "RC SEND_ONLY"
	Headers   HeaderSet
	HeaderLen int // of the BTH and the extension headers together
	Class     Class
}

// HeaderSet is a set of extension headers. They follow the BTH in the order of the bits.
type HeaderSet uint16

// The extension headers.
const (
	HasRDETH HeaderSet = 1 << iota
	HasXRCETH
	HasDETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImm
	HasIETH
)

// extensions has the length of each extension header, and the error of a packet that ends inside
// it, indexed by the bit numbers of a HeaderSet.
var extensions = [...]struct {
	len   int
	short error
}{
	{RDETHLen, shortError("RDETH", RDETHLen)},
	{XRCETHLen, shortError("XRCETH", XRCETHLen)},
	{DETHLen, shortError("DETH", DETHLen)},
	{FETHLen, shortError("FETH", FETHLen)},
	{RETHLen, shortError("RETH", RETHLen)},
	{AtomicETHLen, shortError("AtomicETH", AtomicETHLen)},
	{AETHLen, shortError("AETH", AETHLen)},
	{AtomicAckETHLen, shortError("AtomicAckETH", AtomicAckETHLen)},
	{ImmDtLen, shortError("ImmDt", ImmDtLen)},
	{IETHLen, shortError("IETH", IETHLen)},
}

// Has reports whether s holds all of want.
func (s HeaderSet) Has(want HeaderSet) bool { return s&want == want }

// Len returns the length of the headers in s.
func (s HeaderSet) Len() int {
	n := 0
	for i := range extensions {
		if s&(1<<i) != 0 {
			n += extensions[i].len
		}
	}
	return n
}

// shortError returns the error of a packet that has only n bytes for the headers in s: it names the
// first header that does not fit.
func (s HeaderSet) shortError(n int) error {
	for i := range extensions {
		if s&(1<<i) == 0 {
			continue
		}
		if n -= extensions[i].len; n < 0 {
			return extensions[i].short
		}
	}
	return nil
}

// Class are the properties of a packet. Bits combine: RC SEND_ONLY is a Request, a Send, an
// Only, a Start and an End, and consumes and completes a receive.
type Class uint32

// The bits of a Class.
const (
	Request  Class = 1 << iota // goes from requester to responder
	Response                   // goes from responder to requester

	First  // named FIRST: more packets of the message follow
	Middle // named MIDDLE
	Last   // named LAST
	Only   // named ONLY: the message is this one packet
	Start  // begins a message: FIRST, ONLY, and messages of one packet
	End    // ends a message: LAST, ONLY, and messages of one packet

	Send
	Write
	Read        // READ request or response
	Atomic      // COMPARE_SWAP, FETCH_ADD and their acknowledgement
	Flush       // FLUSH request
	AtomicWrite // ATOMIC_WRITE request
	Acknowledge // ACKNOWLEDGE or ATOMIC_ACKNOWLEDGE

	HasPayload    // may carry a payload
	ConsumesRecv  // takes a receive work request: SEND start, WRITE with immediate
	CompletesRecv // completes it: SEND end, WRITE with immediate
)

// Has reports whether c holds all of want.
func (c Class) Has(want Class) bool { return c&want == want }

// opcodes is the table of all opcodes.
var opcodes = makeOpcodes()

// operation is one row of the table that the transports share.
type operation struct {
	op      Operation
	name    string
	headers HeaderSet
	class   Class
}

const (
	first  = First | Start
	middle = Middle
	last   = Last | End
	only   = Only | Start | End
	single = Start | End // a message of one packet that is not named ONLY

	sendRequest  = Request | Send | HasPayload
	writeRequest = Request | Write | HasPayload
	readResponse = Response | Read | HasPayload
	wholeRecv    = ConsumesRecv | CompletesRecv
)

// rcOperations are the operations of RC, with their headers in RC.
var rcOperations = [...]operation{
	{OpSendFirst, "SEND_FIRST", 0, sendRequest | first | ConsumesRecv},
	{OpSendMiddle, "SEND_MIDDLE", 0, sendRequest | middle},
	{OpSendLast, "SEND_LAST", 0, sendRequest | last | CompletesRecv},
	{OpSendLastImm, "SEND_LAST_IMM", HasImm, sendRequest | last | CompletesRecv},
	{OpSendOnly, "SEND_ONLY", 0, sendRequest | only | wholeRecv},
	{OpSendOnlyImm, "SEND_ONLY_IMM", HasImm, sendRequest | only | wholeRecv},
	{OpWriteFirst, "WRITE_FIRST", HasRETH, writeRequest | first},
	{OpWriteMiddle, "WRITE_MIDDLE", 0, writeRequest | middle},
	{OpWriteLast, "WRITE_LAST", 0, writeRequest | last},
	{OpWriteLastImm, "WRITE_LAST_IMM", HasImm, writeRequest | last | wholeRecv},
	{OpWriteOnly, "WRITE_ONLY", HasRETH, writeRequest | only},
	{OpWriteOnlyImm, "WRITE_ONLY_IMM", HasRETH | HasImm, writeRequest | only | wholeRecv},
	{OpReadRequest, "READ_REQUEST", HasRETH, Request | Read | single},
	{OpReadResponseFirst, "READ_RESPONSE_FIRST", HasAETH, readResponse | first},
	{OpReadResponseMiddle, "READ_RESPONSE_MIDDLE", 0, readResponse | middle},
	{OpReadResponseLast, "READ_RESPONSE_LAST", HasAETH, readResponse | last},
	{OpReadResponseOnly, "READ_RESPONSE_ONLY", HasAETH, readResponse | only},
	{OpAcknowledge, "ACKNOWLEDGE", HasAETH, Response | Acknowledge | single},
	{OpAtomicAcknowledge, "ATOMIC_ACKNOWLEDGE", HasAETH | HasAtomicAckETH, Response | Acknowledge | Atomic | single},
	{OpCompareSwap, "COMPARE_SWAP", HasAtomicETH, Request | Atomic | single},
	{OpFetchAdd, "FETCH_ADD", HasAtomicETH, Request | Atomic | single},
	{OpSendLastInv, "SEND_LAST_INV", HasIETH, sendRequest | last | CompletesRecv},
	{OpSendOnlyInv, "SEND_ONLY_INV", HasIETH, sendRequest | only | wholeRecv},
	{OpFlush, "FLUSH", HasFETH | HasRETH, Request | Flush | single},
	{OpAtomicWrite, "ATOMIC_WRITE", HasRETH, Request | AtomicWrite | single | HasPayload},
}

// makeOpcodes returns the table of opcodes. XRC has all rcOperations, and UC, UD and RD have some of
// them, with the transport's own extension headers. CNP and the RESYNC of RD are no rcOperations.
func makeOpcodes() (table [256]Info) {
	define := func(t Transport, row operation) {
		table[MakeOpcode(t, row.op)] = Info{
			Name:      t.String() + " " + row.name,
			Headers:   row.headers,
			HeaderLen: BTHLen + row.headers.Len(),
			Class:     row.class,
		}
	}
	for _, row := range rcOperations {
		define(TransportRC, row)

		if row.op <= OpWriteOnlyImm { // UC has SENDs and WRITEs only
			define(TransportUC, row)
		}

		xrc := row
		if row.class.Has(Request) {
			xrc.headers |= HasXRCETH
		}
		define(TransportXRC, xrc)

		if row.op == OpSendOnly || row.op == OpSendOnlyImm { // a datagram is one packet
			ud := row
			ud.headers |= HasDETH
			define(TransportUD, ud)
		}

		if row.op <= OpFetchAdd { // later operations are not defined for RD
			rd := row
			rd.headers |= HasRDETH
			if row.class.Has(Request) {
				rd.headers |= HasDETH
			}
			define(TransportRD, rd)
		}
	}
	define(TransportRD, operation{OpResync, "RESYNC", HasRDETH | HasDETH, Request | single})
	table[CNP] = Info{Name: "CNP", HeaderLen: BTHLen, Class: single | HasPayload} // the reserved bytes
	return table
}
