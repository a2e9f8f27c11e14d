output "enrollment" {
  description = "What is enrolled, as toad reads it."
  value       = local.enrollment
}

output "command" {
  description = "How toad is asked on the host, as root or as its user."
  value       = "/usr/local/bin/toad status"
}
