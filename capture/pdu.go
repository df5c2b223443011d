package capture

// PDU is a RoCEv2 packet, an MPA start-up frame or an FPDU. Exactly one pointer is set.
type PDU struct {
	RoCE     *RoCE
	MPAStart *MPAStart
	FPDU     *FPDU
}

// Op returns the name of the operation, as in "RC SEND_ONLY", "CM REQ", "MPA Reply" or
// "RDMA Write".
func (d *PDU) Op() string { return d.part().op() }

// Aliases returns other names for filters: Op without the transport, and the type of
// an acknowledgement.
func (d *PDU) Aliases() []string {
	if d.RoCE == nil {
		return nil
	}
	return d.RoCE.aliases()
}

// Summary returns the main fields in one line.
func (d *PDU) Summary() string { return d.part().summary() }

// Headers returns the decoded headers.
func (d *PDU) Headers() []Header { return d.part().headers() }

// PayloadLen returns the length of the application payload on the wire.
func (d *PDU) PayloadLen() int { return d.part().payloadLen() }

type part interface {
	op() string
	summary() string
	headers() []Header
	payloadLen() int
}

func (d *PDU) part() part {
	switch {
	case d.RoCE != nil:
		return d.RoCE
	case d.MPAStart != nil:
		return d.MPAStart
	}
	return d.FPDU
}

// Header is a decoded protocol header.
type Header struct {
	Name   string
	Fields []Field
}

// Field is a field of a header. Value is a number, a bool or a string; Text is its
// formatted value, empty for the default format.
type Field struct {
	Name  string
	Value any
	Text  string
}

// ChecksumStatus is the result of verifying a checksum.
type ChecksumStatus uint8

// Checksum states.
const (
	ChecksumUnknown ChecksumStatus = iota // octets were not captured
	ChecksumGood
	ChecksumBad
	ChecksumNone // the PDU has no checksum
)

// String returns the name of the status.
func (v ChecksumStatus) String() string {
	return [...]string{"unknown", "good", "bad", "off"}[v&3]
}
