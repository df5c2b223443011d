package sim

// Up reports whether the port's link is up.
func (p *Port) Up() bool { return !p.isDown }

// SetDown takes the port's link down: queued packets and packets on the cable
// are lost, and later packets are dropped. Both ends of a cable go down.
func (p *Port) SetDown() { p.setCarrier(true) }

// SetUp brings the port's link up.
func (p *Port) SetUp() { p.setCarrier(false) }

func (p *Port) setCarrier(down bool) {
	if !p.net.cfg.Cable {
		p.setOwnCarrier(down)
		return
	}
	for _, end := range p.net.ports {
		end.setOwnCarrier(down)
	}
}

func (p *Port) setOwnCarrier(down bool) {
	if p.isDown == down || p.closed {
		return
	}
	p.isDown = down
	w := p.net.w
	if down {
		p.epoch++
		p.uplink.flush()
		p.downlink.flush()
		w.Tracef("%s link down", p.cfg.Name)
		if p.writableTimer.Deadline() > w.now { // flush has emptied the queue
			p.writableTimer.Reset(w.now)
		}
	} else {
		w.Tracef("%s link up", p.cfg.Name)
	}
	if p.linkChange.h != nil {
		w.At(w.now, p.linkChange.h, p.linkChange.arg)
	}
}

// Partition divides the network: ports of different groups cannot reach each
// other. Ports in none of the groups form another group. It replaces any
// earlier partition.
func (n *Net) Partition(groups ...[]*Port) {
	for _, p := range n.ports {
		p.partition = 0
	}
	for i, g := range groups {
		for _, p := range g {
			p.partition = i + 1
		}
	}
	n.partitioned = true
	n.w.Tracef("%s partition into %d groups", n.cfg.Name, len(groups))
}

// Block drops all packets from one port to another, in this direction only.
func (n *Net) Block(from, to *Port) {
	n.blocked[[2]*Port{from, to}] = struct{}{}
	n.w.Tracef("%s block %s>%s", n.cfg.Name, from.cfg.Name, to.cfg.Name)
}

// Unblock undoes Block.
func (n *Net) Unblock(from, to *Port) {
	delete(n.blocked, [2]*Port{from, to})
	n.w.Tracef("%s unblock %s>%s", n.cfg.Name, from.cfg.Name, to.cfg.Name)
}

// Heal undoes Partition and every Block. Links that are down stay down.
func (n *Net) Heal() {
	n.partitioned = false
	clear(n.blocked)
	n.w.Tracef("%s heal", n.cfg.Name)
}

func (n *Net) reachable(from, to *Port) bool {
	if n.partitioned && from.partition != to.partition {
		return false
	}
	if len(n.blocked) == 0 {
		return true
	}
	_, blocked := n.blocked[[2]*Port{from, to}]
	return !blocked
}
