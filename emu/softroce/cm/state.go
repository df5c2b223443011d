package cm

import "fmt"

// State is where a connection or a service lookup is.
type State uint8

// States, as the specification's diagrams name them. Listening is the only
// state of a listener and has no name here. MRA…Sent and MRA…Rcvd are the
// states in which an answer has been put off.
const (
	StateIdle        State = iota // does not exist
	StateREQSent                  // active: waits for REP
	StateMRAREQRcvd               // active: peer has put its REP off
	StateREQRcvd                  // passive: consumer must Accept or Reject
	StateMRAREQSent               // passive: and the peer has been told to wait
	StateREPSent                  // passive: waits for RTU or data
	StateMRAREPRcvd               // passive: peer has put its RTU off
	StateREPRcvd                  // active: consumer must ConfirmReply or Reject
	StateMRAREPSent               // active: and the peer has been told to wait
	StateEstablished              // both
	StateDREQSent                 // waits for DREP
	StateDREQRcvd                 // consumer must DisconnectReply
	StateTimeWait                 // over; its IDs stay taken until old packets are gone
	StateSIDRREQSent              // waits for SIDR_REP
	StateSIDRREQRcvd              // consumer must SIDRReply
)

var stateNames = [...]string{
	"idle", "REQ sent", "MRA(REQ) received", "REQ received", "MRA(REQ) sent", "REP sent", "MRA(REP) received",
	"REP received", "MRA(REP) sent", "established", "DREQ sent", "DREQ received", "time wait",
	"SIDR_REQ sent", "SIDR_REQ received",
}

// String prints the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}
