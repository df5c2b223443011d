package carrier

// Registered is how many regions NICs can reach.
func (c *Carrier) Registered() int { return len(c.byKey) }
