package cm

import "fmt"

// State is the state of a connection or SIDR request.
type State uint8

// States have the names of the specification. In MRA…Sent and MRA…Rcvd an MRA delayed an answer.
const (
	StateIdle        State = iota // does not exist
	StateREQSent                  // active: waits for REP
	StateMRAREQRcvd               // active: an MRA delayed the REP
	StateREQRcvd                  // passive: consumer must Accept or Reject
	StateMRAREQSent               // passive: consumer must Accept or Reject, and an MRA was sent
	StateREPSent                  // passive: waits for RTU or data
	StateMRAREPRcvd               // passive: an MRA delayed the RTU
	StateREPRcvd                  // active: consumer must ConfirmReply or Reject
	StateMRAREPSent               // active: consumer must ConfirmReply or Reject, and an MRA was sent
	StateEstablished              // both
	StateDREQSent                 // waits for DREP
	StateTimeWait                 // ended; the IDs stay in use until old packets have expired
	StateSIDRREQSent              // waits for SIDR_REP
	StateSIDRREQRcvd              // consumer must SIDRReply
)

var stateNames = [...]string{
	"idle", "REQ sent", "MRA(REQ) received", "REQ received", "MRA(REQ) sent", "REP sent", "MRA(REP) received",
	"REP received", "MRA(REP) sent", "established", "DREQ sent", "time wait",
	"SIDR_REQ sent", "SIDR_REQ received",
}

// String returns the name of the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}
