package verbcalls

import "github.com/fabrictest/fabrictest/verbs"

// address is a verbs.AH.
type address struct {
	verbs.AH
	handle
	pd *domain
}

func (a *address) sound() verbs.AH { return a.AH }

// CreateAH makes an address handle. With AHUnchecked a port or an SGID index that does not
// exist is replaced by a valid one instead of being refused.
func (p *domain) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	if p.d.q.ClaimsAndRefuses {
		return nil, notTheDevices("create_ah")
	}
	if p.d.q.AHUnchecked {
		if attr.Port < 1 || attr.Port > p.d.truth().Ports {
			attr.Port = 1
		}
		if port, err := p.d.Context.QueryPort(attr.Port); err == nil && int(attr.GRH.SGIDIndex) >= port.GIDs {
			attr.GRH.SGIDIndex = 0
		}
	}
	h, err := makes(p.d, "AHs", func() (verbs.AH, error) { return p.PD.CreateAH(attr) })
	if err != nil {
		return nil, p.answers(err)
	}
	return &address{AH: h, handle: handle{d: p.d}, pd: p}, nil
}

// Attr is how the handle was made, as far as AHAttrForgotten remembers.
func (a *address) Attr() verbs.AHAttr {
	attr := a.AH.Attr()
	if a.d.q.AHAttrForgotten {
		return verbs.AHAttr{GRH: verbs.GRH{DGID: attr.GRH.DGID}}
	}
	return attr
}

// Close removes the handle.
func (a *address) Close() error { return a.close(a.AH) }

// reachable is the sound handle for a request of p's to go to x: by AHsAnyDomain one
// that was made in the domain of p.
func (p *pair) reachable(x verbs.AH) verbs.AH {
	a := mine[*address](p.d, x)
	if !p.d.q.AHsAnyDomain || a == nil || p.pd == nil || a.pd == p.pd {
		return its(x)
	}
	p.mu.Lock()
	moved := p.moved[a]
	p.mu.Unlock()
	if moved != nil {
		return moved
	}
	moved, err := p.pd.PD.CreateAH(a.AH.Attr())
	if err != nil {
		return a.AH
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = map[*address]verbs.AH{}
	}
	p.moved[a] = moved
	return moved
}
