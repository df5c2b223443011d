package cm

// Defects imitate defects of real devices. The zero value has none.
type Defects struct {
	// IgnoreCommEst waits for an RTU even when data has arrived.
	IgnoreCommEst bool
}
