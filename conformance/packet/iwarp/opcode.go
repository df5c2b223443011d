package iwarp

import "fmt"

// Opcode is an RDMAP opcode, four bits.
type Opcode uint8

// The opcodes of RFC 5040 and RFC 7306.
const (
	OpWrite            Opcode = 0
	OpReadRequest      Opcode = 1
	OpReadResponse     Opcode = 2
	OpSend             Opcode = 3
	OpSendInvalidate   Opcode = 4
	OpSendSE           Opcode = 5
	OpSendSEInvalidate Opcode = 6
	OpTerminate        Opcode = 7
	OpImmediate        Opcode = 8
	OpImmediateSE      Opcode = 9
	OpAtomicRequest    Opcode = 10
	OpAtomicResponse   Opcode = 11
	OpExperimental     Opcode = 15 // reserved for experiments by RFC 6580
)

// form is the layout of a message.
type form struct {
	name string
	// tagged: the message is tagged; untagged ones use queue qn.
	tagged bool
	qn     uint32
	// header is the length of the RDMAP header after the DDP header.
	header int
	// payload: the message has payload.
	payload bool
	// invalidates: the Invalidate STag field is used.
	invalidates bool
}

var forms = [...]form{
	OpWrite:            {name: "WRITE", tagged: true, payload: true},
	OpReadRequest:      {name: "READ REQUEST", qn: queueRequest, header: readRequestLen},
	OpReadResponse:     {name: "READ RESPONSE", tagged: true, payload: true},
	OpSend:             {name: "SEND", payload: true},
	OpSendInvalidate:   {name: "SEND INVALIDATE", payload: true, invalidates: true},
	OpSendSE:           {name: "SEND SE", payload: true},
	OpSendSEInvalidate: {name: "SEND SE INVALIDATE", payload: true, invalidates: true},
	OpTerminate:        {name: "TERMINATE", qn: queueTerminate},
	OpImmediate:        {name: "IMMEDIATE", header: 8},
	OpImmediateSE:      {name: "IMMEDIATE SE", header: 8},
	OpAtomicRequest:    {name: "ATOMIC REQUEST", qn: queueRequest, header: 52},
	OpAtomicResponse:   {name: "ATOMIC RESPONSE", qn: queueAtomicResponse, header: 12},
}

// form returns the layout of o's messages; false for unassigned opcodes.
func (o Opcode) form() (form, bool) {
	if int(o) >= len(forms) {
		return form{payload: true}, false
	}
	return forms[o], true
}

// Assigned reports whether an RFC assigns the opcode.
func (o Opcode) Assigned() bool { return int(o) < len(forms) }

// Tagged reports whether messages of the opcode are tagged.
func (o Opcode) Tagged() bool { f, _ := o.form(); return f.tagged }

// Queue returns the DDP queue of untagged messages of the opcode.
func (o Opcode) Queue() uint32 { f, _ := o.form(); return f.qn }

// String returns the name, as in a ladder diagram.
func (o Opcode) String() string {
	if f, ok := o.form(); ok {
		return f.name
	}
	return fmt.Sprintf("OPCODE %d", uint8(o))
}
