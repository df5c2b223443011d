package conformance

// Protocol is the wire protocol of a device, by the name of its suite.
type Protocol string

// The protocols.
const (
	RoCE          Protocol = "roce"
	IWARP         Protocol = "iwarp"
	DatagramIWARP Protocol = "dgiwarp"
)
