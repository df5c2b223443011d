package packet

import (
	"fmt"
	"strings"
)

// Line describes a packet for people: parts that are separated by spaces.
type Line []string

// Addf adds a part.
func (l *Line) Addf(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *Line) String() string { return strings.Join(*l, " ") }

// AddField adds a field if it is set.
func AddField[T any](l *Line, format string, v *T) {
	if v != nil {
		l.Addf(format, *v)
	}
}
