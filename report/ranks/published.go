package ranks

// tableRow is a row of Thesis Table 6.1: the memory of an application in 4 KB pages of all
// its processes, with datagrams and with connections.
type tableRow struct {
	workload string
	name     string // name in the table
	ud, rc   [3]float64
}

// thesisRanks are the numbers of processes of the table's columns.
var thesisRanks = [3]int{4, 16, 64}

var thesisPages = []tableRow{
	{"cg", "CG.B", [3]float64{234924, 556801, 1994428}, [3]float64{235204, 570207, 2097580}},
	{"mg", "MG.B", [3]float64{216591, 534255, 1913295}, [3]float64{222862, 555854, 2038179}},
	{"lu", "LU.B", [3]float64{153453, 473740, 1894628}, [3]float64{155982, 495422, 1978663}},
	{"smg", "SMG2000", [3]float64{102899, 418063, 1815192}, [3]float64{105138, 461478, 2577276}},
	{"radix", "RADIX", [3]float64{133678, 453124, 1727232}, [3]float64{135297, 491937, 2493291}},
}

const pageBytes = 4096

// connectionMemory returns the bytes per process that connections add.
func (p *tableRow) connectionMemory(column int) float64 {
	return (p.rc[column] - p.ud[column]) * pageBytes / float64(thesisRanks[column])
}

// saved returns the share of all memory that datagrams save.
func (p *tableRow) saved(column int) float64 { return 1 - p.ud[column]/p.rc[column] }

// surveyed has the values of Survey Tables 1 and 2, and its text, for an application with
// 64 processes. Negative values are not published.
type surveyed struct {
	workload   string
	name       string
	rings      float64 // connections with RDMA, on average
	low        float64 // low watermark events, on average
	unexpected float64 // per cent of messages
	ratio      string  // memory of ring-sendrecv divided by that of srq
}

const surveyRanks = 64

var surveyTable = []surveyed{
	{"is", "IS", 6.14, 0, 2.7, "about 10"},
	{"ft", "FT", 0.98, 0, 11.9, "about 10"},
	{"bt", "BT", 3.89, 0, 0.3, "about 10"},
	{"sp", "SP", 1.17, 0, 0.7, "about 10"},
	{"cg", "CG", 3.09, 0, 13.5, "about 2"},
	{"mg", "MG", 9.0, 0, 10.2, "about 2"},
	{"lu", "LU", 3.92, 0, 38.1, "about 2"},
	{"superlu", "SuperLU, rim", 14.25, 0.64, 30.0, "9"},
	{"hpl", "HPL", 6.26, 0, 13.6, ""},
}

// titles of patterns, and their descriptions.
var patternTitles = map[string][2]string{
	"neighbours": {"Neighbours on a grid", "At most six partners, and those of barriers and reductions, which grow with the logarithm of the ranks."},
	"cg":         {"CG", "Partners grow with the logarithm of the ranks."},
	"alltoall":   {"All-to-all", "All ranks are partners."},
	"radix":      {"RADIX", "Every rank sends keys to every other."},
	"smg":        {"SMG2000", "On the coarsest levels all ranks are partners."},
}

// The curve of allToAll continues with star, which measures rank 0 alone, for more ranks
// than a host can run.
const (
	allToAll = "alltoall"
	star     = "star"
)

// patternOrder is the order on the page.
var patternOrder = []string{"neighbours", "cg", allToAll, "radix", "smg"}

// Names of the experiments.
const (
	curves = "curves" // all designs against the number of ranks
	thesis = "thesis" // connections and datagrams (Thesis Table 6.1)
	survey = "survey" // rings, and shared receives (Survey Table 1 and Fig. 4)
)
