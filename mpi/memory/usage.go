package memory

// Kind is a kind of communication memory.
type Kind uint8

// The kinds of communication memory.
const (
	SendBuffers            Kind = iota // packets under way
	ConnReceiveBuffers                 // receives of connections without SRQ
	SharedReceiveBuffers               // receives of SRQs
	DatagramReceiveBuffers             // receives of datagrams
	RingBuffers                        // rings that peers write to
	SharedSegments                     // shared memory with ranks of the same host
	kinds
)

var kindNames = [kinds]string{"send buffers", "receives of connections", "shared receives", "receives of datagrams", "rings", "shared segments"}

func (k Kind) String() string { return kindNames[k] }

// Usage is the current and the largest size of each kind of memory, in bytes.
type Usage struct {
	Now [kinds]int `json:"now"`
	Max [kinds]int `json:"max"`
}

// Add counts n more bytes of a kind; fewer if n is negative.
func (u *Usage) Add(kind Kind, n int) {
	u.Now[kind] += n
	u.Max[kind] = max(u.Max[kind], u.Now[kind])
}

// Total is the memory in use now, of all kinds, in bytes.
func (u *Usage) Total() (n int) {
	for _, bytes := range u.Now {
		n += bytes
	}
	return n
}
