package httpd

import (
	"errors"
	"maps"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"toad/probation"
	"toad/probation/record"
)

// metrics is GET /metrics. All figures come from the records at the time of asking: the daemon comes and goes, and
// counts of its own would begin anew each time.
func (s *Server) metrics(c *call) error {
	services, damaged, err := s.all()
	if err != nil {
		return err
	}
	now := prometheus.NewRegistry()
	now.MustRegister(&figures{s, services, damaged})
	promhttp.HandlerFor(now, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(c, c.r)
	return nil
}

// all reads every service's record.
func (s *Server) all() (services []probation.Service, damaged []string, err error) {
	names, err := s.Records.Names()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		switch svc, err := s.Records.Service(name); {
		case errors.Is(err, record.ErrDamaged):
			damaged = append(damaged, name)
		case err != nil:
			return nil, nil, err
		default:
			services = append(services, svc)
		}
	}
	return services, damaged, nil
}

// figures is what the records tell at one moment.
type figures struct {
	s        *Server
	services []probation.Service
	damaged  []string
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("toad_"+name, help, labels, nil)
}

var (
	operationsDesc = desc("operations_total", "Operations that ended, by how they ended.", "service", "outcome")
	phaseDesc      = desc("phase_seconds", "Time that operations spent in a phase they have left.", "service", "phase")
	activeDesc     = desc("operation_active", "1 while an operation is in this phase.", "service", "phase")
	deadlineDesc   = desc("deadline_seconds", "Seconds until an undecided operation is rolled back; negative when it is late.", "service")
	refusalsDesc   = desc("refusals", "Releases that are refused here.", "service")
	generationDesc = desc("generation", "The service's generation.", "service")
	damagedDesc    = desc("service_damaged", "1 for a service whose record cannot be read.", "service")
	alertsDesc     = desc("alerts_spooled", "Alerts that are not delivered yet.")
	buildDesc      = desc("build_info", "The version of toad that answers.", "version", "goversion")
)

// Describe is for a collector whose figures are known; these depend on the records.
func (f *figures) Describe(chan<- *prometheus.Desc) {}

// Collect tells all figures.
func (f *figures) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(buildDesc, 1, f.s.Version, runtime.Version())
	if f.s.Alerts != nil {
		if n, err := f.s.Alerts(); err == nil {
			gauge(alertsDesc, float64(n))
		}
	}
	for _, name := range f.damaged {
		gauge(damagedDesc, 1, name)
	}
	for _, svc := range f.services {
		gauge(generationDesc, float64(svc.Generation), svc.Name)
		gauge(refusalsDesc, float64(len(svc.Refusals)), svc.Name)
		if op := svc.Active(); op != nil {
			gauge(activeDesc, 1, svc.Name, string(op.Phase))
			if d := op.Deadline; d != nil {
				gauge(deadlineDesc, d.At.Sub(f.s.now()).Seconds(), svc.Name)
			}
		}
		for _, phase := range slices.Sorted(maps.Keys(svc.Totals.Ended)) {
			out <- prometheus.MustNewConstMetric(operationsDesc, prometheus.CounterValue, float64(svc.Totals.Ended[phase]), svc.Name, string(phase))
		}
		for _, phase := range slices.Sorted(maps.Keys(svc.Totals.Left)) {
			out <- prometheus.MustNewConstSummary(phaseDesc, uint64(svc.Totals.Left[phase].Count),
				svc.Totals.Left[phase].Time.Seconds(), nil, svc.Name, string(phase))
		}
	}
}
