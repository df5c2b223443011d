package capture

// PDU is one message of an RDMA protocol, or a part of one: a RoCEv2 packet, a
// start-up frame of MPA, or an FPDU. Exactly one of the pointers is set.
type PDU struct {
	RoCE     *RoCE
	MPAStart *MPAStart
	FPDU     *FPDU
}

// Op is what the message is called, as in "RC SEND_ONLY", "CM REQ", "MPA Reply"
// or "RDMA Write".
func (d *PDU) Op() string { return d.part().op() }

// Aliases are other names by which a person may ask for it: without the
// transport, and for an acknowledgement what it says.
func (d *PDU) Aliases() []string {
	if d.RoCE == nil {
		return nil
	}
	return d.RoCE.aliases()
}

// Summary is what matters of the message, in a line.
func (d *PDU) Summary() string { return d.part().summary() }

// Headers are its headers, field by field.
func (d *PDU) Headers() []Header { return d.part().headers() }

// PayloadLen is how much of the application it carries.
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

// Header is one header with its fields.
type Header struct {
	Name   string
	Fields []Field
}

// Field is one field of a header. Value is a number, a bool or a string; Text
// is how people want to see it, empty if as it is.
type Field struct {
	Name  string
	Value any
	Text  string
}

// ChecksumStatus is what became of a check.
type ChecksumStatus uint8

// The verdicts.
const (
	ChecksumUnknown ChecksumStatus = iota // it could not be made: octets are missing
	ChecksumGood
	ChecksumBad
	ChecksumNone // there is nothing to check
)

// String prints the verdict in a word.
func (v ChecksumStatus) String() string {
	return [...]string{"unknown", "good", "bad", "off"}[v&3]
}
