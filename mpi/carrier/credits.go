package carrier

const (
	// reservedCredits are left to packets that return credits, which avoids a deadlock of
	// two ranks without credits.
	reservedCredits = 4
	// minReceives lets credits be returned after half of them are used.
	minReceives = 4
)

// credits counts the receives that the peer has posted for a connection. Each packet takes
// one.
type credits struct {
	enabled   bool // without them the peer's NIC makes ours wait for receives
	available int
	toReturn  int // receives posted again since credits were last returned
}

// hasCredit reports whether a packet may be sent without using reserved credits.
func (c *credits) hasCredit() bool { return c.available > reservedCredits || !c.enabled }

// canSendAck reports whether an ack-only packet may be sent: it may use reserved credits.
func (c *credits) canSendAck() bool { return c.available > 0 || !c.enabled }
